"""What people read about plans and runs: it reads everything and changes nothing."""
