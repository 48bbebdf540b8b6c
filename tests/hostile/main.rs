//! Input that means harm: over sockets, byte by byte, and the corpus of the fuzz targets.

mod corpus;
