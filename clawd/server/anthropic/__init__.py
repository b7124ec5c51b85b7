"""The Messages API in Anthropic's shape: a request becomes a chat request, an answer becomes content blocks."""
