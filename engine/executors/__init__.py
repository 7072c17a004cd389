"""Who computes the model?

torch's OpenMP threads must sleep while our own pool works, not spin beside it; its runtime reads these settings once,
when torch is first imported, so this package sets them before any of its modules does that.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")
