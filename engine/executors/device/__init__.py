"""The blocks of a model in torch, on whatever device torch knows."""
