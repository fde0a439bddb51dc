"""The map server and the console of ``tileferry serve``: one module per page or endpoint.

A page is a module with its handlers and a ``PAGE``, and templates of its name; ``pages.py`` lists
it. A handler gets a :class:`~tileferry.entrypoints.web.site.PageRequest`, calls a use case of its
installation, and renders a template. Rules stay in the domain.
"""
