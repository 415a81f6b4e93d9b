select stopped.holder from tally.stopped_holders() as stopped
