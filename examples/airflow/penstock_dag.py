"""An Airflow DAG that runs a pipeline every hour. Penstock is installed in the task's Python, and
the progress of the run is in the task's log.

Airflow 3; Airflow 2 has ``dag`` and ``task`` in ``airflow.decorators``."""

from datetime import datetime

from airflow.sdk import dag, task


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def shop():
    @task(retries=2)
    def sync() -> dict[str, object]:
        import penstock

        report = penstock.run("/srv/penstock/shop.yaml", env_file="/srv/penstock/.env")
        return {"status": report.status, "rows": sum(s.committed for s in report.streams)}

    sync()


shop()
