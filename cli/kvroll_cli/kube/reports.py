"""A worker's report, through the API server's proxy."""

from google.protobuf.json_format import Parse, ParseError

from kvroll.v1.worker_pb2 import GetReportResponse
from kvroll_cli.errors import CliError
from kvroll_cli.kube.cluster import Cluster


def read_report(cluster: Cluster, pod: str) -> GetReportResponse:
    """What that worker answers GetReport with; fields of a newer worker are passed over.

    Raises:
        CliError: no answer, or one that is not a report.
    """
    page = cluster.worker_page(pod, "report")
    try:
        return Parse(page, GetReportResponse(), ignore_unknown_fields=True)
    except ParseError as error:
        raise CliError(f"expected a report of worker {pod}, found: {error}") from error
