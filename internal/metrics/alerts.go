package metrics

import (
	"strings"
	"time"
)

// The values of the label severity of alerts.
const (
	Critical = "critical" // data is lost or at risk, or nothing works
	Warning  = "warning"  // a part does not work
)

// Alert is an alerting rule. tools/monitoring writes the rules to deploy/monitoring;
// docs/OPERATIONS.md has a section for each.
type Alert struct {
	Name        string
	Expr        string        // PromQL over the metrics of Table
	For         time.Duration // how long the expression holds before the alert fires
	Severity    string
	Summary     string // templates of Prometheus
	Description string
}

// Runbook returns the anchor of the alert's section in docs/OPERATIONS.md.
func (a Alert) Runbook() string { return strings.ToLower(a.Name) }

// Alerts returns the alerts in the order of their sections in docs/OPERATIONS.md.
func Alerts() []Alert {
	alerts := sourceAlerts()
	alerts = append(alerts, routeAlerts()...)
	alerts = append(alerts, stateAlerts()...)
	alerts = append(alerts, fleetAlerts()...)
	return append(alerts, handlerAlerts()...)
}

func sourceAlerts() []Alert {
	return []Alert{{
		Name: "DeltarouterAbsent", Severity: Critical, For: 10 * time.Minute,
		Expr:        `absent(deltarouter_build_info)`,
		Summary:     "No router reports metrics.",
		Description: "Prometheus scrapes no deltarouter. Either no router runs, or its metrics are not scraped.",
	}, {
		Name: "DeltarouterReloadFailed", Severity: Warning, For: time.Minute,
		Expr:        `deltarouter_config_last_reload_successful == 0`,
		Summary:     "The configuration on disk is invalid.",
		Description: "The router rejected the configuration on disk and continues with the previous one. A restart would fail.",
	}, {
		Name: "DeltarouterIncludeRejected", Severity: Warning, For: time.Minute,
		Expr:        `deltarouter_include_rejected_files > 0`,
		Summary:     "Files of include {{ $labels.include }} have mistakes.",
		Description: "{{ $value }} files of include {{ $labels.include }} have mistakes. Their routes are disabled, or continue as they were until the router restarts.",
	}, {
		Name: "DeltarouterRouteDisabled", Severity: Critical, For: time.Minute,
		Expr:        `deltarouter_route_disabled > 0`,
		Summary:     "Route {{ $labels.route }} is disabled.",
		Description: "Route {{ $labels.route }} does not fit the schemas of the cluster since a start of the router. It gets no changes; its backlog is kept.",
	}, {
		Name: "DeltarouterSourceNotSynced", Severity: Warning, For: 10 * time.Minute,
		Expr:        `deltarouter_source_synced == 0`,
		Summary:     "Source {{ $labels.source }} has not listed its objects.",
		Description: "Source {{ $labels.source }} has had no complete list of its objects for over 10 minutes. Its routes deliver nothing.",
	}, {
		Name: "DeltarouterSourceStale", Severity: Warning, For: 5 * time.Minute,
		Expr:        `deltarouter_source_unproven_seconds > 300`,
		Summary:     "Source {{ $labels.source }} may miss changes.",
		Description: "Source {{ $labels.source }} got no event, bookmark or list for {{ $value | humanizeDuration }}. Changes since then may not be delivered yet.",
	}}
}

func routeAlerts() []Alert {
	return []Alert{{
		Name: "DeltarouterBacklogOld", Severity: Warning, For: 5 * time.Minute,
		Expr:        `deltarouter_route_oldest_pending_seconds > 900`,
		Summary:     "Route {{ $labels.route }} is behind.",
		Description: "The oldest pending delta of route {{ $labels.route }} has waited for {{ $value | humanizeDuration }}.",
	}, {
		Name: "DeltarouterSinkUnavailable", Severity: Warning, For: 10 * time.Minute,
		Expr:        `deltarouter_route_sink_unavailable == 1`,
		Summary:     "Sink {{ $labels.sink }} of route {{ $labels.route }} is unavailable.",
		Description: "Sink {{ $labels.sink }} has not accepted events of route {{ $labels.route }} for over 10 minutes. They are retried until their maxAge.",
	}, {
		Name: "DeltarouterRoutePaused", Severity: Warning, For: time.Minute,
		Expr:        `deltarouter_route_paused == 1`,
		Summary:     "Route {{ $labels.route }} is paused.",
		Description: "Route {{ $labels.route }} delivers nothing until it is resumed. Its backlog grows.",
	}, {
		Name: "DeltarouterDeadLetters", Severity: Warning,
		Expr:        `increase(deltarouter_route_deltas_total{result="dead_lettered"}[15m]) > 0`,
		Summary:     "Route {{ $labels.route }} writes dead letters.",
		Description: "Route {{ $labels.route }} gave up about {{ $value | humanize }} deltas in the last 15 minutes. They are kept as dead letters.",
	}, {
		Name: "DeltarouterDeltasLost", Severity: Critical,
		Expr: `increase(deltarouter_dead_letters_evicted_total[1h]) > 0` + "\n" +
			`or increase(deltarouter_route_errors_total{kind="overflow"}[1h]) > 0`,
		Summary: "Route {{ $labels.route }} lost deltas.",
		Description: "Route {{ $labels.route }} lost about {{ $value | humanize }} deltas or dead letters in the last hour, " +
			"because its queue was full or because of the limits of dead letters.",
	}}
}

func stateAlerts() []Alert {
	return []Alert{{
		Name: "DeltarouterCheckpointOld", Severity: Critical, For: 2 * time.Minute,
		Expr:        `deltarouter_checkpoint_age_seconds > 60`,
		Summary:     "The state folder takes no writes.",
		Description: "The last checkpoint is {{ $value | humanizeDuration }} old. Deltas of new objects wait, and a crash would deliver the others again.",
	}, {
		Name: "DeltarouterDiskLow", Severity: Warning, For: 15 * time.Minute,
		Expr:        `deltarouter_state_disk_free_bytes < clamp_min(deltarouter_state_file_bytes, 268435456)`,
		Summary:     "The disk of the state folder is nearly full.",
		Description: "The disk of the state folder has {{ $value | humanize1024 }}B left: less than 256 MiB, or less than a copy of the state file needs.",
	}, {
		Name: "DeltarouterStateFileFull", Severity: Warning, For: 15 * time.Minute,
		Expr:        `deltarouter_state_file_bytes / deltarouter_state_file_limit_bytes > 0.8`,
		Summary:     "The state file is near its maximum size.",
		Description: "The state file has {{ $value | humanizePercentage }} of the size that state.maxSize allows. At 100 % new deltas wait.",
	}, {
		Name: "DeltarouterHistoryLost", Severity: Warning, For: 5 * time.Minute,
		Expr:        `sum without (reason) (increase(deltarouter_history_lost_total[15m])) > 0`,
		Summary:     "The history misses records.",
		Description: "The history could not take about {{ $value | humanize }} changes and decisions in the last 15 minutes. Deltas are delivered.",
	}}
}

func fleetAlerts() []Alert {
	return []Alert{{
		Name: "DeltarouterFleetNATS", Severity: Warning, For: 5 * time.Minute,
		Expr:        `deltarouter_fleet_nats_problems > 0`,
		Summary:     "NATS has problems that affect the fleet.",
		Description: "The leader has found {{ $value }} faults of NATS for over 5 minutes. Deltas for workers wait on its disk, or standbys fall behind.",
	}, {
		Name: "DeltarouterFleetStranded", Severity: Warning, For: time.Minute,
		Expr:        `deltarouter_fleet_stranded_deltas > 0`,
		Summary:     "Deltas of route {{ $labels.route }} have no workers.",
		Description: "{{ $value }} deltas of route {{ $labels.route }} wait for workers, which the configuration does not give it any more.",
	}}
}

func handlerAlerts() []Alert {
	return []Alert{{
		Name: "DeltarouterGuestAtLimit", Severity: Warning,
		Expr:        `increase(deltarouter_guests_ended_total{reason=~"fuel|timeout|stack|memory"}[15m]) > 5`,
		Summary:     "Guests of handler {{ $labels.handler }} reach a limit.",
		Description: "About {{ $value | humanize }} guests of handler {{ $labels.handler }} reached the limit {{ $labels.reason }} in the last 15 minutes.",
	}, {
		Name: "DeltarouterHandlerFails", Severity: Warning,
		Expr:        `increase(deltarouter_guests_ended_total{reason=~"trap|exit|answer|start|connection|health"}[15m]) > 5`,
		Summary:     "Guests of handler {{ $labels.handler }} fail.",
		Description: "About {{ $value | humanize }} guests of handler {{ $labels.handler }} ended because of an error in the last 15 minutes: {{ $labels.reason }}.",
	}}
}
