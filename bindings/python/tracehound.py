"""Says to Tracehound's recorder which request the program works on. Without the recorder every call does nothing.

    with tracehound.request(7, "GET /items"):
        ...                                     # what this thread allocates and frees belongs to request 7

    await tracehound.follow(handle(), 7, "GET /items")
    # the same for a coroutine: also where it waits and others run in between

    tracehound.install()                        # in a running event loop: tasks go on in the request that made them

`heaptrace contexts`, and `--context` of every command, then tell requests apart.
"""

import asyncio
import contextlib
import contextvars
import ctypes

_current = contextvars.ContextVar("tracehound_request", default=0)


def _functions():
    """The recorder's own functions, if it is in the process."""
    process = ctypes.CDLL(None)
    try:
        set_id, name = process.tracehound_context_set, process.tracehound_context_name
    except AttributeError:
        return (lambda id: None), (lambda id, text: None)
    set_id.argtypes, set_id.restype = [ctypes.c_uint64], None
    name.argtypes, name.restype = [ctypes.c_uint64, ctypes.c_char_p], None
    return set_id, name


_set, _name = _functions()


def current():
    """The request that runs here; 0: none."""
    return _current.get()


def name(id, text):
    """Gives request `id` a name."""
    _name(id, text.encode())


@contextlib.contextmanager
def request(id, text=None):
    """What happens inside belongs to request `id`. Not across `await`: see `follow`."""
    if text is not None:
        name(id, text)
    token = _current.set(id)
    _set(id)
    try:
        yield
    finally:
        _current.reset(token)
        _set(_current.get())


def follow(awaitable, id, text=None):
    """A coroutine that runs an awaitable in request `id`, and only that, however often it waits."""
    if text is not None:
        name(id, text)
    return _coroutine(_Following(awaitable, id))


async def _coroutine(following):
    return await following


class _Following:
    def __init__(self, awaitable, id):
        self._awaitable, self._id = awaitable, id

    def __await__(self):
        return _steps(self._awaitable.__await__(), self._id)


def _steps(steps, id):
    send, value = steps.send, None
    while True:
        with request(id):
            try:
                waits_for = send(value)
            except StopIteration as end:
                return end.value
        try:
            send, value = steps.send, (yield waits_for)
        except BaseException as error:
            if not hasattr(steps, "throw"):
                raise
            send, value = steps.throw, error


def install(loop=None):
    """Tasks that are made from here on go on in the request that made them."""
    loop = loop or asyncio.get_running_loop()
    before = loop.get_task_factory()

    def factory(loop, coroutine, **options):
        id = _current.get()
        if id:
            coroutine = _task(coroutine, id)
        return before(loop, coroutine, **options) if before else asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)


async def _task(coroutine, id):
    return await follow(coroutine, id)
