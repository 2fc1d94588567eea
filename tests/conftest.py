"""What all tests share."""

from __future__ import annotations

import torch

# Tests multiply small matrices, for which more threads cost more than they save.
torch.set_num_threads(1)
