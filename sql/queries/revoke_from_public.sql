-- Nobody but their owner calls our functions, until somebody grants it.
revoke execute on all functions in schema tally from public
