"""The bodies of the HTTP API, one module per thing:
the coordinator takes and answers them, the SDK sends and reads them."""
