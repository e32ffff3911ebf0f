"""One module a page, each with its ``ROUTES``: method, path, function. A function gets the site and
the request, and a form's inputs, and calls what the command line calls."""
