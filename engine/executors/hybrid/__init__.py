"""A model between CPU and GPU: most experts in RAM, the hottest in VRAM, the rest of the layers on the device."""
