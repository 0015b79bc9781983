"""Process startup: loads the mill, and tunes the garbage collector."""

import gc
import importlib
import sys
import traceback
from pathlib import Path

from tidemill.app.mill import Mill
from tidemill.core.errors import InvalidInput, InvalidSettings


def load_mill(reference: str) -> Mill:
    """Import the mill ``module:name``; the working directory is searched first.

    Raises:
        InvalidInput: The module cannot be imported, or the object is not a Mill.
        InvalidSettings: The settings of the environment, which a mill reads when it declares a handler, are invalid.
    """
    module_name, _, name = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidInput(f'Module "{module_name}" not found. Use MODULE:NAME, such as app:mill.') from error
        raise InvalidInput(_format_import_error(module_name, error)) from error
    except InvalidSettings:
        raise  # the message lists the settings; a traceback of the module would not help
    except Exception as error:
        raise InvalidInput(_format_import_error(module_name, error)) from error
    mill = getattr(module, name or "mill", None)
    if not isinstance(mill, Mill):
        raise InvalidInput(f'"{reference}" is not a Mill. Use MODULE:NAME, such as app:mill.')
    return mill


def _format_import_error(module_name: str, error: Exception) -> str:
    """Describe an import error with the part of the traceback that belongs to the module."""
    trace = error.__traceback__
    while trace is not None and ("importlib" in (file := trace.tb_frame.f_code.co_filename) or file == __file__):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, chain=False)
    return f'Cannot import "{module_name}":\n{"".join(lines).rstrip()}'


def relax_garbage_collector() -> None:
    """Exclude all current objects from garbage collection, and collect new ones less often.

    With the default threshold of 700 objects a worker loses a fifth of its throughput, and an API process pauses while
    the collector scans every imported module.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
