"""`corral-vm`: what scenarios run inside the machine: a client, kills, a judge."""
