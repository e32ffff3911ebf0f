"""What crosses the boundary of a Rapidbyte v4 component: documents and records, names of the WIT
interfaces, Arrow frames and their check, their compression, the form of WebAssembly binaries. No
component is run and no policy decided here. Imports nothing else of ``protocols.rapidbyte``.
"""
