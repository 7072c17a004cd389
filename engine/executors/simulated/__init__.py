"""An accelerator that is played by the CPU, for tests and for PCs without one."""
