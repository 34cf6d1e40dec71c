"""Models of real providers, through pydantic-ai: the extra `models`. Nothing of it is imported before it is used."""
