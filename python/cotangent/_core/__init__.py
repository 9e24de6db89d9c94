"""The parts of the package that its public modules are made of.

Creation of tensors (``creation``), their methods, sizes and text (``methods``, ``size``, ``text``), dtypes and devices (``dtypes``,
``devices``), gradient modes and hooks (``modes``, ``hooks``), functions with PyTorch's or the standard's arguments (``forms``,
``standard``), nested containers (``pytree``), samplers (``samplers``), what PyTorch's files contain (``pickled``), settings without
effect (``hints``) and other names of modules (``aliases``).
"""
