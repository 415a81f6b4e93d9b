"""For the tests of people who write tasks: a pytest plugin with the fixtures `tally` and `tally_server`.

    from dispatcher.testing.tally import Tally

is what an annotation needs. The plugin itself is `pytest_pgtally`, beside the packages.
"""
