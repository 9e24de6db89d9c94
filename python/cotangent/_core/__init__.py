"""Private modules that implement the public ones.

Creation of tensors (``creation``), their methods, sizes and text (``methods``, ``size``, ``text``), dtypes and devices (``dtypes``,
``devices``), gradient modes and hooks (``modes``, ``hooks``), functions with PyTorch's or the standard's arguments (``forms``,
``standard``), nested containers (``pytree``), samplers (``samplers``), tokenizers (``tokenizers``), the containers of PyTorch's files (``pickled``), settings
without effect (``hints``) and other names of modules (``aliases``).
"""
