"""Two caches, compared: what is different, does it matter, is it the same work.

opening, sides   what a person named, and what is known of it besides its files
compare          two inventories -> their difference       models      what that is
work, metrics, environment, graphs, kernels, products, coverage     its parts
others           of graphs on one side only, the nearest of the other
resources, occupancy, sources, settings     of a pair of kernels or settings: what differs, and its effect
findings         the parts, as rules ask for them
suspects, kernel_suspects, clues     rules: what may be the cause
verdict          the likeliest of them, and one line
"""
