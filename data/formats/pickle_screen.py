"""Screening of a pickle before anything in it is built: what its opcodes would make is counted, not made.

A small pickle can make large or endless objects: lists of lists that share one another, tuples so deep that hashing
them overflows the stack, calls that copy the same text again and again. The opcodes are followed here on a stack of
counts, and limits in proportion to the size of the file are enforced. Python's and PyTorch's unpicklers come afterwards
and decide which names may be used.
"""

import pickletools
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

FREE_OPCODES, BYTES_PER_OPCODE = 500_000, 256  # limit of opcodes: the first, and one more per so many bytes
FREE_BYTES, EXPANSION = 16 << 20, 8  # limit of the data made: the first, and so many times the size of the file
MAX_DEPTH = 100
MAX_INTEGER_BITS = 128  # the magic number of old files of PyTorch has 77
MAX_ARGUMENT = 255  # of an integer given to a function other than PyTorch's _rebuild_: bytearray(n) makes n bytes
CODECS = ("latin1", "latin-1", "utf-8", "ascii")  # others take quadratic time
TOO_MUCH = "it expands to more data than the file holds"


def screen(file: IO[bytes], size: int) -> None:
    """Follow one pickle to its end, and leave the file there.

    Args:
        file: binary file at the beginning of the pickle.
        size: of the whole file in bytes, which the limits depend on.

    Raises:
        ValueError: the pickle is damaged, or would make too much.
    """
    machine = _Machine(size)
    for opcode, argument, _ in pickletools.genops(file):
        machine.follow(opcode.name, argument)


class _Node:
    """Counts of an object that the pickle would make.

    Attributes:
        weight: Bytes and items in it, those of a shared object as often as it occurs.
        depth: Levels of containers.
        is_key: Whether it may be the key of a dict: no container and nothing made by a call.
        value: A number, text, the name of a function, or the nodes of a tuple; None otherwise.
        is_closed: Whether something else holds it, after which it must not grow.
    """

    __slots__ = ("depth", "is_closed", "is_key", "value", "weight")

    def __init__(self, weight: int = 1, depth: int = 0, is_key: bool = False, value: Any = None):
        self.weight, self.depth, self.is_key, self.value, self.is_closed = weight, depth, is_key, value, False


class _Machine:
    """Stack and memo of an unpickler whose objects are nodes."""

    def __init__(self, size: int):
        self.max_opcodes = FREE_OPCODES + size // BYTES_PER_OPCODE
        self.max_weight = FREE_BYTES + EXPANSION * size
        self.size = size
        self.opcodes = self.spent = 0
        self.stack: list[_Node] = []
        self.marks: list[int] = []
        self.memo: dict[int, _Node] = {}

    def follow(self, name: str, argument: Any) -> None:
        """Follow one opcode. Raises ValueError."""
        self.opcodes += 1
        if self.opcodes > self.max_opcodes:
            raise ValueError(f"more than {self.max_opcodes} opcodes")
        handler = HANDLERS.get(name)
        if handler is None:
            self.stack.append(_scalar(argument))
        else:
            handler(self, argument)

    def pop(self, count: int) -> list[_Node]:
        """Remove the top nodes."""
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("an opcode without its operands")
        nodes = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return nodes

    def pop_to_mark(self) -> list[_Node]:
        """Remove the nodes above the last mark, and the mark."""
        if not self.marks:
            raise ValueError("a mark is missing")
        mark = self.marks.pop()
        nodes = self.stack[mark:]
        del self.stack[mark:]
        return nodes

    def top(self) -> _Node:
        """Return the top node."""
        node = self.pop(1)[0]
        self.stack.append(node)
        return node

    def grow(self, node: _Node, parts: Sequence[_Node]) -> None:
        """Put parts into a node. Raises ValueError where an object would hold itself, or too much."""
        if node.is_closed:
            raise ValueError("an object that grows after it is used")
        for part in parts:
            part.is_closed = True
            node.weight += part.weight
            node.depth = max(node.depth, part.depth + 1)
        if node.depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels of containers")
        if node.weight > self.max_weight:
            raise ValueError(TOO_MUCH)

    def spend(self, weight: int) -> None:
        """Count what a call is given, which it may copy."""
        self.spent += weight
        if self.spent > self.max_weight:
            raise ValueError(TOO_MUCH)

    def remember(self, index: int) -> None:
        """Put the top node into the memo, for all of which an unpickler reserves memory up to the largest index."""
        if not 0 <= index <= self.opcodes:
            raise ValueError(f"a memo of {index} entries")
        self.memo[index] = self.top()

    def push(self, parts: Sequence[_Node], keeps_parts: bool = False) -> None:
        """Push a container of parts."""
        node = _Node(depth=1, value=list(parts) if keeps_parts else None)
        self.grow(node, parts)
        self.stack.append(node)


def _scalar(value: Any) -> _Node:
    if type(value) is int and value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError(f"an integer of {value.bit_length()} bits")
    length = len(value) if type(value) in (str, bytes, bytearray) else 0
    return _Node(1 + length, is_key=type(value) is not bytearray, value=value)


def _ignore(machine: _Machine, _: Any) -> None:
    """Nothing to do: of PROTO, say."""


def _refuse(*_: Any) -> NoReturn:
    raise ValueError("an opcode that names an object outside of the file")


def _frame(machine: _Machine, length: int) -> None:
    if length > machine.size:
        raise ValueError("a frame beyond the end of the file")


def _mark(machine: _Machine, _: Any) -> None:
    machine.marks.append(len(machine.stack))


def _pop(machine: _Machine, _: Any) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):  # the mark itself
        machine.marks.pop()
    else:
        machine.pop(1)


def _duplicate(machine: _Machine, _: Any) -> None:
    node = machine.top()
    node.is_closed = True
    machine.stack.append(node)


def _get(machine: _Machine, index: int) -> None:
    if index not in machine.memo:
        raise ValueError(f"the memo has no entry {index}")
    machine.memo[index].is_closed = True
    machine.stack.append(machine.memo[index])


def _extend(machine: _Machine, parts: Sequence[_Node]) -> None:
    machine.grow(machine.top(), parts)


def _set_items(machine: _Machine, parts: Sequence[_Node]) -> None:
    _check_keys(parts[::2])
    machine.grow(machine.top(), parts)


def _dict(machine: _Machine, _: Any) -> None:
    parts = machine.pop_to_mark()
    _check_keys(parts[::2])
    machine.push(parts)


def _add_items(machine: _Machine, _: Any) -> None:
    parts = machine.pop_to_mark()
    _check_keys(parts)
    machine.grow(machine.top(), parts)


def _frozen_set(machine: _Machine, _: Any) -> None:
    parts = machine.pop_to_mark()
    _check_keys(parts)
    machine.push(parts)


def _check_keys(nodes: Sequence[_Node]) -> None:
    """Raise ValueError for containers as keys: hashing them may take any time, and comparing them any stack."""
    if not all(node.is_key for node in nodes):
        raise ValueError("a key that is neither text nor a number")


def _named(machine: _Machine, argument: str) -> None:
    machine.stack.append(_Node(value=argument.replace(" ", ".")))


def _stack_named(machine: _Machine, _: Any) -> None:
    module, name = machine.pop(2)
    machine.stack.append(_Node(value=f"{module.value}.{name.value}"))


def _persistent(machine: _Machine, _: Any) -> None:
    """A storage of PyTorch, whose identifier ends in its number of elements."""
    identifier = machine.pop(1)[0]
    for part in identifier.value if type(identifier.value) is list else ():
        if type(part.value) is int and part.value > machine.size:
            raise ValueError(f"a storage of {part.value} elements")
    machine.stack.append(_Node())


def _call(machine: _Machine, count: int) -> None:
    """Follow a call of a function (REDUCE) or class (NEWOBJ), whose arguments are the last of `count` nodes."""
    function, *arguments = machine.pop(count)
    for arguments_node in arguments:
        parts = arguments_node.value if type(arguments_node.value) is list else []
        _check_arguments(str(function.value) if type(function.value) is str else "", parts)
        machine.spend(arguments_node.weight)
    machine.push(arguments)


def _check_arguments(function: str, parts: Sequence[_Node]) -> None:
    rebuilds = "._rebuild_" in function
    for part in parts:
        if type(part.value) is int and part.value > MAX_ARGUMENT and not rebuilds:
            raise ValueError(f"the number {part.value} as an argument of {function[:MAX_ARGUMENT]}")
    if function.endswith(".encode") and len(parts) > 1 and parts[1].value not in CODECS:
        raise ValueError("text in an encoding that no such file has")


def _build(machine: _Machine, _: Any) -> None:
    state = machine.pop(1)[0]
    machine.spend(state.weight)
    machine.grow(machine.top(), [state])


# Every other opcode pushes its argument.
HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _ignore,
    "STOP": _ignore,
    "FRAME": _frame,
    "MARK": _mark,
    "POP": _pop,
    "POP_MARK": lambda machine, _: _ignore(machine, machine.pop_to_mark()),
    "DUP": _duplicate,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.remember),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"), lambda machine, _: machine.push(())),
    "EMPTY_TUPLE": lambda machine, _: machine.push((), keeps_parts=True),
    "TUPLE1": lambda machine, _: machine.push(machine.pop(1), keeps_parts=True),
    "TUPLE2": lambda machine, _: machine.push(machine.pop(2), keeps_parts=True),
    "TUPLE3": lambda machine, _: machine.push(machine.pop(3), keeps_parts=True),
    "TUPLE": lambda machine, _: machine.push(machine.pop_to_mark(), keeps_parts=True),
    "LIST": lambda machine, _: machine.push(machine.pop_to_mark()),
    "DICT": _dict,
    "FROZENSET": _frozen_set,
    "APPEND": lambda machine, _: _extend(machine, machine.pop(1)),
    "APPENDS": lambda machine, _: _extend(machine, machine.pop_to_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, machine.pop(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_to_mark()),
    "ADDITEMS": _add_items,
    "GLOBAL": _named,
    "STACK_GLOBAL": _stack_named,
    "REDUCE": lambda machine, _: _call(machine, 2),
    "NEWOBJ": lambda machine, _: _call(machine, 2),
    "NEWOBJ_EX": lambda machine, _: _call(machine, 3),
    "BUILD": _build,
    "BINPERSID": _persistent,
    **dict.fromkeys(("PERSID", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"), _refuse),
}
