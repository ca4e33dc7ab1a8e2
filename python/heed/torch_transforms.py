"""heed.attention under torch.func (grad, vjp, vmap and what is made of them). First derivatives in
reverse mode only: whatever else is asked for raises."""

import torch
from torch.autograd import forward_ad


class Attention(torch.autograd.Function):
    """torch.ops.heed.forward, which takes the tensors (three and optional ones) and the numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(numbers, q, k, v, *tensors):
        return torch.ops.heed.forward(q, k, v, *tensors, *numbers)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.numbers = inputs[0]
        ctx.save_for_backward(*inputs[1:4], *output, *inputs[4:])

    @staticmethod
    def backward(ctx, d_o, d_lse):
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        is_wanted = ctx.needs_input_grad[4:]
        bias, sinks = (_index_of(name) for name in ("bias", "sinks"))
        dq, dk, dv, d_bias, d_sinks = Gradients.apply(
            ctx.numbers, is_wanted[bias], is_wanted[sinks], d_o, d_lse, q, k, v, o, lse, *tensors)
        gradients = [None] * len(tensors)
        if is_wanted[bias]:
            gradients[bias] = d_bias
        if is_wanted[sinks]:
            gradients[sinks] = d_sinks
        return (None, dq, dk, dv, *gradients)


class Gradients(torch.autograd.Function):
    """torch.ops.heed.backward, which has no derivative itself."""

    generate_vmap_rule = True

    @staticmethod
    def forward(numbers, wants_d_bias, wants_d_sinks, d_o, d_lse, q, k, v, o, lse, *tensors):
        return torch.ops.heed.backward(d_o.contiguous(), d_lse.contiguous(), q, k, v, o, lse,
                                       wants_d_bias, wants_d_sinks, *tensors, *numbers)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Nothing is kept."""

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError("heed.attention: second derivatives are not available")


def _index_of(name):
    from heed.torch import TENSORS
    return TENSORS.index(name)


def refuse_forward_mode(tensors):
    """NotImplementedError if one of the tensors, or None, carries a forward-mode tangent."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError("heed.attention: forward-mode derivatives are not available; "
                                      "use reverse mode (torch.autograd.grad, torch.func.grad)")
