"""Programs of other people's methods, whose types are checked as the library's are; at present there are none."""
