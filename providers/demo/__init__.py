"""The offline demo model: a small chat-completions server without a language model behind it."""
