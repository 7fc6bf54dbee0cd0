"""What the owner of the inputs can do alone: ops before the first layer, and ops behind the last.

- *Head*: with one input and one output the chain of ops of one operand from the input on; with several, or where other
  ops that depend
  on inputs only are no sums, products and moves (look-ups: one-hot vectors), all ops that depend on inputs only. The
  client computes them in the clear and encrypts the result.
- *Tail*: of every output everything behind the tensor that is furthest from it among those that alone lead to it
  through ops. The
  client decrypts that tensor and computes the rest (softmax, a last activation, reshapes): it learns that tensor, not
  only the output. Where several layers lead to an output through ops that are more than sums, products and moves (the
  mean of several models' probabilities, votes), the results of all of them are that tensor.

The body between them always has one input and one output. Where several tensors cross, they cross as one: behind each
other along the first axis where their other axes agree, element behind element otherwise. Ops of the head join them,
ops of the body take them apart, and the same the other way round at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph, Linear, Node, Op
from .dead_code import dead_code
from .edit import Links, copy, fresh, reads

SUMS_PRODUCTS_AND_MOVES = frozenset(
    {
        "reshape", "transpose", "slice", "concat", "pad", "broadcast", "gather", "interpolate", "affine", "neg",
        "square", "add", "sub",
        "mul", "matmul", "reduce_sum", "reduce_mean", "reduce_prod", "average_pool",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Ends:
    """The three parts of a graph; ``head`` and ``tail`` are None where there are no ops.

    Attributes:
        head: from the graph's inputs to the input of the body; of a graph with several outputs also to those that need
            no layer.
        body: one input, one output; without nodes where they are the same.
        tail: from the output of the body to the graph's outputs that the head does not have.
    """

    head: Graph | None
    body: Graph
    tail: Graph | None


def split_ends(graph: Graph) -> Ends:
    """Cuts a graph in head, body and tail.

    Raises:
        ValueError: the graph has no output, or none that depends on an input.
    """
    if not graph.inputs or not graph.outputs:
        raise ValueError(f"the network has inputs {graph.inputs} and outputs {graph.outputs}")
    graph = dead_code(graph)
    members = {name: _members(graph, name) for name in graph.outputs}
    if (
        len(graph.inputs) != 1
        or len(graph.outputs) != 1
        or _bends_an_input(graph)
        or len(members[graph.outputs[0]]) > 1
    ):
        return _several(graph, members)
    first, last = _first(graph), _last(graph, graph.outputs[0])
    if first == graph.inputs[0] and last == graph.outputs[0]:
        return Ends(None, graph, None)
    order = [graph.inputs[0], *(node.output for node in graph.nodes)]
    if order.index(first) > order.index(last):
        # no layer at all: everything is the client's
        first = last
    return Ends(
        _part(graph, graph.inputs[0], first),
        _part(graph, first, last) or _empty(graph, first),
        _part(graph, last, graph.outputs[0]),
    )


def _bends_an_input(graph: Graph) -> bool:
    """Whether a layer follows on ops that depend on the input only, are no chain, and are more than linear.

    Linear here are sums, products and moves.
    """
    clear = _clear(graph)
    chain, tensor = {graph.inputs[0]}, _first(graph)
    producer = {node.output: node for node in graph.nodes}
    while tensor not in chain:
        chain.add(tensor)
        tensor = reads(producer[tensor])[0]
    bent = any(
        isinstance(n, Op) and n.output in clear - chain and n.op not in SUMS_PRODUCTS_AND_MOVES for n in graph.nodes
    )
    return bent and graph.outputs[0] not in clear


def _clear(graph: Graph) -> set[str]:
    """Tensors that depend on inputs only, through ops alone."""
    clear = set(graph.inputs)
    for node in graph.nodes:
        if isinstance(node, Op) and all(name in clear for name in node.inputs):
            clear.add(node.output)
    return clear


def _first(graph: Graph) -> str:
    links = Links(graph)
    tensor = graph.inputs[0]
    while (reader := links.only_reader(tensor)) is not None:
        if isinstance(reader, Linear) or len(reader.inputs) != 1:
            break
        tensor = reader.output
    return tensor


def _last(graph: Graph, output: str) -> str:
    """The deepest single tensor from which ops alone lead to an output."""
    producer = Links(graph).producer
    position = {node.output: index for index, node in enumerate(graph.nodes)}
    best, front = output, {output}
    while front:
        tensor = max(front, key=lambda name: position.get(name, -1))
        node = producer.get(tensor)
        if node is None or isinstance(node, Linear):
            break
        front = (front - {tensor}) | set(node.inputs)
        if len(front) == 1:
            best = next(iter(front))
    return best


def _members(graph: Graph, output: str) -> list[str]:
    """The tensors that an output is computed from by the owner of the result.

    One tensor, or the results of several layers where ops that are more than linear stand between them and it.
    """
    last, clear = _last(graph, output), _clear(graph)
    producer = Links(graph).producer
    waiting, sources, between = [last], set[str](), list[Op]()
    seen = set[str]()
    while waiting:
        tensor = waiting.pop()
        node = producer.get(tensor)
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in clear:
            # what depends on inputs alone is no result; constants that are made of one are
            return [last]
        if isinstance(node, Linear):
            sources.add(tensor)
        elif node is not None:
            between.append(node)
            waiting += node.inputs
    if all(node.op in SUMS_PRODUCTS_AND_MOVES for node in between) or _follows(graph, sources):
        return [last]
    return [node.output for node in graph.nodes if node.output in sources]


def _follows(graph: Graph, sources: set[str]) -> bool:
    """Whether one of some tensors is made of another."""
    behind = set[str]()
    for node in graph.nodes:
        if any(name in behind or name in sources for name in reads(node)):
            if node.output in sources:
                return True
            behind.add(node.output)
    return False


def _part(graph: Graph, first: str, last: str) -> Graph | None:
    """The nodes between two tensors as a graph; None where they are the same."""
    if first == last:
        return None
    part = copy(graph)
    producer = [node.output for node in part.nodes]
    if first in producer:
        part.nodes = part.nodes[producer.index(first) + 1 :]
    part.inputs, part.outputs = [first], [last]
    return dead_code(part)


def _empty(graph: Graph, tensor: str) -> Graph:
    return Graph(graph.name, [tensor], [tensor], {tensor: graph.shapes[tensor]}, [])


def _several(graph: Graph, members: Mapping[str, list[str]]) -> Ends:
    """The parts of a graph with several inputs or outputs, or several layers in front of an output."""
    graph = copy(graph)
    clear = _clear(graph)
    own = [name for name in graph.outputs if name in clear]
    ends = [name for name in graph.outputs if name not in clear]
    opened = list(dict.fromkeys(tensor for name in ends for tensor in members[name]))
    if not opened:
        # no layer at all
        return Ends(_between(graph, graph.inputs, graph.outputs), _empty(graph, graph.inputs[0]), None)
    body = _between(graph, sorted(clear), opened)
    read = {name for node in body.nodes for name in reads(node)}
    entering = [name for name in [*graph.inputs, *(n.output for n in graph.nodes)] if name in clear & read]
    body.inputs = entering
    head = _between(graph, graph.inputs, [*entering, *own])
    tail = _between(graph, opened, ends)
    first, last = entering[0], opened[0]
    if len(entering) > 1:
        first = _joined(graph, head, entering, "inputs")
        body.nodes[:0] = _taken_apart(graph, first, entering)
    if len(opened) > 1:
        last = _joined(graph, body, opened, "outputs")
        tail.nodes[:0] = _taken_apart(graph, last, opened)
    head.outputs, body.inputs, body.outputs, tail.inputs = [first, *own], [first], [last], [last]
    plain = not head.nodes and head.inputs == head.outputs
    alone = not tail.nodes and tail.inputs == tail.outputs
    return Ends(None if plain else dead_code(head), dead_code(body), None if alone else dead_code(tail))


def _between(graph: Graph, first: list[str], last: list[str]) -> Graph:
    """The nodes that lead to some tensors from others."""
    needed, kept, stop = set(last), list[Node](), set(first)
    for node in reversed(graph.nodes):
        if node.output in needed and node.output not in stop:
            kept.append(node)
            needed.update(reads(node))
    return Graph(graph.name, list(first), list(last), graph.shapes, kept[::-1])


def _joined(graph: Graph, part: Graph, names: list[str], what: str) -> str:
    """One tensor of several; its ops go to the end of a part."""
    shapes = [graph.shapes[name] for name in names]
    if len({(len(s), *s[1:]) for s in shapes}) == 1 and len(shapes[0]) > 0:
        whole = (sum(s[0] for s in shapes), *shapes[0][1:])
        pieces = names
    else:
        pieces = [fresh(graph, f"{name}.flat", (math.prod(graph.shapes[name]),)) for name in names]
        part.nodes += [Op(f"{f}.reshape", "reshape", [n], f) for n, f in zip(names, pieces)]
        whole = (sum(map(math.prod, shapes)),)
    joined = fresh(graph, f"{graph.name}.{what}", whole)
    part.nodes.append(Op(joined, "concat", list(pieces), joined, {"axis": 0}))
    return joined


def _taken_apart(graph: Graph, joined: str, names: list[str]) -> list[Node]:
    """The tensors that :func:`_joined` joined."""
    made: list[Node] = []
    rows = math.prod(graph.shapes[joined][1:])
    start = 0
    for name in names:
        shape = graph.shapes[name]
        end = start + math.prod(shape) // rows
        attrs = {"starts": [start], "ends": [end], "axes": [0], "steps": [1]}
        piece = (end - start, *graph.shapes[joined][1:])
        same = piece == shape
        part = name if same else fresh(graph, f"{name}.part", piece)
        made.append(Op(f"{name}.slice", "slice", [joined], part, attrs))
        if not same:
            made.append(Op(f"{name}.reshape", "reshape", [part], name))
        start = end
    return made
