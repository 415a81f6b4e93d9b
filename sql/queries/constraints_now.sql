-- What waits for COMMIT to speak, a deferred constraint or its trigger, speaks now.
set constraints all immediate
