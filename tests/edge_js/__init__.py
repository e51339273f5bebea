"""The device in TypeScript is built and tested here where Node and its modules are installed."""
