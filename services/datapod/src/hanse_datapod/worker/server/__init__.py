"""The worker's side: it reads requests from its pipe and answers them."""
