"""`kvroll dashboard`: a page on loopback that shows pools live while they roll. It only reads, with the user's kubeconfig.

Lives here: looking at the cluster for everyone who has the page open (`feed`), the HTTP of it (`app`), the document that the page
draws (`document`), and the page itself (`page/`, plain HTML, CSS and JavaScript). Nothing here writes to the cluster.
"""
