"""AMD's AITER kernels. What its routes share is here; each route is a backend in a folder of its own."""
