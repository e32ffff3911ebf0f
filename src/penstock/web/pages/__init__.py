"""One module a page, each with its ``ROUTES``: method, path, function. A function takes the site,
the request and a form's inputs, and calls what the command line calls."""
