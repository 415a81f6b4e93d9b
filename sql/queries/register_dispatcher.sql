select tally.register_dispatcher(
    %(dispatcher)s, %(host)s, %(boot_id)s, %(network_namespace)s, %(pid)s, %(slots)s, %(queue)s
)
