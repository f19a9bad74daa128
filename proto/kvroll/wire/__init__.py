"""What both ends of the wire contract must agree on beside its messages: the options of gRPC channels and servers.

Imports grpc and nothing of ours; operator, gateway and worker import it as they import `kvroll.v1`.
"""
