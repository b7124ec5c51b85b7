"""OpenAI's Responses API, without state: a request becomes a chat request, an answer becomes output items."""
