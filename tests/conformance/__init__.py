"""These tests hold the conformance kit to the code, and runners to the kit."""
