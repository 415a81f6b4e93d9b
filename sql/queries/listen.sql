-- Both channels: tally_work says that a queue has new tasks, tally_cancel that a RUNNING task's cancel was accepted.
listen tally_work; listen tally_cancel
