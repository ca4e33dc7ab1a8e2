"""heed under the names of FlashAttention-2 and FlashAttention-3.

    import heed.compat
    heed.compat.install()          # from here on `import flash_attn` and
    from flash_attn import flash_attn_func    # `import flash_attn_interface` are heed

Programs that ask importlib.metadata whether flash-attn is installed are told so too, as
transformers does for attn_implementation="flash_attention_2".

Without install() the same modules are heed.compat.flash_attn and heed.compat.flash_attn_interface.
"""

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import sys

_NAMES = ("flash_attn", "flash_attn_interface", "flash_attn_3")
# Distribution -> module and version, for programs that ask what is installed before they import.
_DISTRIBUTIONS = {"flash-attn": ("flash_attn", "2.8.3"),
                  "flash-attn-3": ("flash_attn_interface", "3.0.0")}


class _Distribution(importlib.metadata.Distribution):
    """What is said of a package that has no files of its own."""

    def __init__(self, name):
        module, version = _DISTRIBUTIONS[name]
        self._texts = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
                       "top_level.txt": module + "\n"}

    def read_text(self, filename):
        return self._texts.get(filename)

    def locate_file(self, path):
        raise FileNotFoundError(path)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the modules that heed has. Whatever else an installed flash_attn holds (such as
    flash_attn.cute) is still found where it is."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in _NAMES:
            return None
        own = f"{__name__}.{name}"
        try:
            found = importlib.util.find_spec(own)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return importlib.util.spec_from_loader(name, self, origin=own,
                                               is_package=found.submodule_search_locations
                                               is not None)

    def find_distributions(self, context=None):
        wanted = getattr(context, "name", None)
        for name in _DISTRIBUTIONS:
            if wanted is None or wanted.replace("_", "-").lower() == name:
                yield _Distribution(name)

    def create_module(self, spec):
        return importlib.import_module(spec.origin)

    def exec_module(self, module):
        """The module is loaded already, under its own name."""


def install():
    """Makes `import flash_attn`, `flash_attn_interface` and `flash_attn_3` mean heed here. Raises
    RuntimeError if another flash_attn has been imported already. Calling it twice is fine."""
    for name in _NAMES:
        module = sys.modules.get(name)
        if module is not None and not module.__name__.startswith(__name__):
            raise RuntimeError(f"{name} has been imported from {module.__file__}: call "
                               "heed.compat.install() before anything imports it")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def uninstall():
    """Takes install() back for imports to come."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in list(sys.modules):
        if name.partition(".")[0] in _NAMES and (
                sys.modules[name].__name__.startswith(__name__)):
            del sys.modules[name]
