"""Real trained networks on inputs of their kind: encrypted answers beside ONNX Runtime's."""

from hushnet.demos.measure import Comparison, compare
from hushnet.demos.tasks import DEMOS, TASKS, Samples, Task
from hushnet.errors import DemoError

__all__ = ["DEMOS", "TASKS", "Comparison", "DemoError", "Samples", "Task", "compare"]
