"""This wing reads people's own tables: any format, named columns, errors that point to a line.

Owns: finding, reading and checking the columns of a file, and making a data set of them. Does not own: public archives
(`edgefr.data.readers`).
"""
