"""What the owner of the input can do alone: ops before the first layer, and ops behind the last.

- *Head*: everything up to the tensor that is furthest from the input among those to which ops alone lead and through
  which everything goes. The client computes it in the clear and encrypts that tensor.
- *Tail*: everything behind the tensor that is furthest from the output among those that alone lead to it through ops. The client
  decrypts that tensor and computes the rest (softmax, a last activation, reshapes): it learns that tensor, not only the output.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Graph, Linear, Node
from .dead_code import dead_code
from .edit import Links, copy


@dataclass(frozen=True)
class Ends:
    """The three parts of a graph with one input and one output; ``head`` and ``tail`` are None where there are no ops."""

    head: Graph | None
    body: Graph
    tail: Graph | None


def split_ends(graph: Graph) -> Ends:
    """Cuts a graph with one input and one output in head, body and tail.

    Raises:
        ValueError: several inputs or outputs.
    """
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise ValueError(f"the network has inputs {graph.inputs} and outputs {graph.outputs}")
    graph = dead_code(graph)
    first, last = _first(graph), _last(graph)
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


def _first(graph: Graph) -> str:
    """The deepest single tensor to which ops alone lead, and on which everything behind it depends alone."""
    last = {name: index for index, node in enumerate(graph.nodes) for name in _reads(node)}
    last |= {name: len(graph.nodes) for name in graph.outputs}
    best, open_tensors = graph.inputs[0], {graph.inputs[0]}
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Linear):
            break
        open_tensors = {name for name in open_tensors | {node.output} if last.get(name, -1) > index}
        if len(open_tensors) == 1:
            best = next(iter(open_tensors))
    return best


def _reads(node: Node) -> list[str]:
    return [node.input] if isinstance(node, Linear) else node.inputs


def _last(graph: Graph) -> str:
    """The deepest single tensor from which ops alone lead to the output."""
    producer = Links(graph).producer
    position = {node.output: index for index, node in enumerate(graph.nodes)}
    best, front = graph.outputs[0], {graph.outputs[0]}
    while front:
        tensor = max(front, key=lambda name: position.get(name, -1))
        node = producer.get(tensor)
        if node is None or isinstance(node, Linear):
            break
        front = (front - {tensor}) | set(node.inputs)
        if len(front) == 1:
            best = next(iter(front))
    return best


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
