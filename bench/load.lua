-- wrk's side of `load.py`: one POST over and over, and what came of it as one line of JSON.
wrk.method = "POST"
wrk.body = os.getenv("BENCH_BODY")
wrk.headers["Content-Type"] = "application/json"

done = function(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        'JSON {"answers": %d, "refused": %d, "seconds": %.6f, "broken": %d}\n',
        summary.requests, errors.status, summary.duration / 1e6,
        errors.connect + errors.read + errors.write + errors.timeout
    ))
end
