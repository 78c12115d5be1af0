package main

// series are input series of promtool, by name with labels: values as START+STEPxCOUNT, a minute
// apart.
type series map[string]string

// alertCase has the series at which an alert fires, and others at which it does not. Where an alert
// has a threshold or a time, they are on both sides of it, so that a change of it is noticed.
type alertCase struct {
	fires       series
	at          string // when it fires
	labels      map[string]string
	summary     string
	description string
	early       string // when it does not fire yet; empty: it fires at once
	quiet       series
}

// alertCases has the cases of each alert by name.
var alertCases = map[string]alertCase{
	"DeltarouterAbsent": {
		fires: series{`up{job="other"}`: "1+0x30"}, early: "9m", at: "10m",
		summary:     "No router reports metrics.",
		description: "Prometheus scrapes no deltarouter. Either no router runs, or its metrics are not scraped.",
		quiet:       series{`deltarouter_build_info{version="v1"}`: "1+0x60"},
	},
	"DeltarouterReloadFailed": {
		fires: series{`deltarouter_config_last_reload_successful`: "0+0x30"}, early: "0m", at: "1m",
		summary:     "The configuration on disk is invalid.",
		description: "The router rejected the configuration on disk and continues with the previous one. A restart would fail.",
		quiet:       series{`deltarouter_config_last_reload_successful`: "1+0x60"},
	},
	"DeltarouterIncludeRejected": {
		fires: series{`deltarouter_include_rejected_files{include="payments"}`: "2+0x30"}, early: "0m", at: "1m",
		labels:      map[string]string{"include": "payments"},
		summary:     "Files of include payments have mistakes.",
		description: "2 files of include payments have mistakes. Their routes are disabled, or continue as they were until the router restarts.",
		quiet:       series{`deltarouter_include_rejected_files{include="payments"}`: "0+0x60"},
	},
	"DeltarouterRouteDisabled": {
		fires: series{`deltarouter_route_disabled{route="big"}`: "1+0x30"}, early: "0m", at: "1m",
		labels:      map[string]string{"route": "big"},
		summary:     "Route big is disabled.",
		description: "Route big does not fit the schemas of the cluster since a start of the router. It gets no changes; its backlog is kept.",
		quiet:       series{`deltarouter_route_disabled{route="big"}`: "0+0x60"},
	},
	"DeltarouterSourceNotSynced": {
		fires: series{`deltarouter_source_synced{source="pods"}`: "0+0x30"}, early: "9m", at: "10m",
		labels:      map[string]string{"source": "pods"},
		summary:     "Source pods has not listed its objects.",
		description: "Source pods has had no complete list of its objects for over 10 minutes. Its routes deliver nothing.",
		quiet:       series{`deltarouter_source_synced{source="pods"}`: "1+0x60"},
	},
	"DeltarouterSourceStale": {
		fires: series{`deltarouter_source_unproven_seconds{source="pods"}`: "301+0x30"}, early: "4m", at: "5m",
		labels:      map[string]string{"source": "pods"},
		summary:     "Source pods may miss changes.",
		description: "Source pods got no event, bookmark or list for 5m 1s. Changes since then may not be delivered yet.",
		quiet:       series{`deltarouter_source_unproven_seconds{source="pods"}`: "300+0x60"},
	},
	"DeltarouterBacklogOld": {
		fires: series{`deltarouter_route_oldest_pending_seconds{route="alerts"}`: "901+0x30"}, early: "4m", at: "5m",
		labels:      map[string]string{"route": "alerts"},
		summary:     "Route alerts is behind.",
		description: "The oldest pending delta of route alerts has waited for 15m 1s.",
		quiet:       series{`deltarouter_route_oldest_pending_seconds{route="alerts"}`: "900+0x60"},
	},
	"DeltarouterSinkUnavailable": {
		fires: series{`deltarouter_route_sink_unavailable{route="alerts", sink="slack"}`: "1+0x30"}, early: "9m", at: "10m",
		labels:      map[string]string{"route": "alerts", "sink": "slack"},
		summary:     "Sink slack of route alerts is unavailable.",
		description: "Sink slack has not accepted events of route alerts for over 10 minutes. They are retried until their maxAge.",
		quiet:       series{`deltarouter_route_sink_unavailable{route="alerts", sink="slack"}`: "0+0x60"},
	},
	"DeltarouterRoutePaused": {
		fires: series{`deltarouter_route_paused{route="alerts"}`: "1+0x30"}, early: "0m", at: "1m",
		labels:      map[string]string{"route": "alerts"},
		summary:     "Route alerts is paused.",
		description: "Route alerts delivers nothing until it is resumed. Its backlog grows.",
		quiet:       series{`deltarouter_route_paused{route="alerts"}`: "0+0x60"},
	},
	"DeltarouterDeadLetters": {
		fires: series{`deltarouter_route_deltas_total{route="alerts", result="dead_lettered"}`: "0+1x30"}, at: "20m",
		labels:      map[string]string{"route": "alerts", "result": "dead_lettered"},
		summary:     "Route alerts writes dead letters.",
		description: "Route alerts gave up about 15 deltas in the last 15 minutes. They are kept as dead letters.",
		quiet: series{
			`deltarouter_route_deltas_total{route="alerts", result="dead_lettered"}`: "7+0x60",
			`deltarouter_route_deltas_total{route="alerts", result="delivered"}`:     "0+1x60",
		},
	},
	"DeltarouterDeltasLost": {
		fires: series{`deltarouter_dead_letters_evicted_total{route="alerts", reason="age"}`: "0+1x90"}, at: "70m",
		labels:  map[string]string{"route": "alerts", "reason": "age"},
		summary: "Route alerts lost deltas.",
		description: "Route alerts lost about 60 deltas or dead letters in the last hour, " +
			"because its queue was full or because of the limits of dead letters.",
		quiet: series{
			`deltarouter_dead_letters_evicted_total{route="alerts", reason="age"}`: "5+0x60",
			`deltarouter_route_errors_total{route="alerts", kind="overflow"}`:      "5+0x60",
			`deltarouter_route_errors_total{route="alerts", kind="filter"}`:        "0+1x60",
		},
	},
	"DeltarouterCheckpointOld": {
		fires: series{`deltarouter_checkpoint_age_seconds`: "61+0x30"}, early: "1m", at: "2m",
		summary:     "The state folder takes no writes.",
		description: "The last checkpoint is 1m 1s old. Deltas of new objects wait, and a crash would deliver the others again.",
		quiet:       series{`deltarouter_checkpoint_age_seconds`: "60+0x60"},
	},
	"DeltarouterDiskLow": {
		fires: series{`deltarouter_state_disk_free_bytes`: "268435455+0x30", `deltarouter_state_file_bytes`: "16777216+0x30"}, early: "14m", at: "15m",
		summary:     "The disk of the state folder is nearly full.",
		description: "The disk of the state folder has 256MiB left: less than 256 MiB, or less than a copy of the state file needs.",
		quiet:       series{`deltarouter_state_disk_free_bytes`: "268435456+0x60", `deltarouter_state_file_bytes`: "268435456+0x60"},
	},
	"DeltarouterStateFileFull": {
		fires: series{`deltarouter_state_file_bytes`: "801+0x30", `deltarouter_state_file_limit_bytes`: "1000+0x30"}, early: "14m", at: "15m",
		summary:     "The state file is near its maximum size.",
		description: "The state file has 80.1% of the size that state.maxSize allows. At 100 % new deltas wait.",
		quiet:       series{`deltarouter_state_file_bytes`: "800+0x60", `deltarouter_state_file_limit_bytes`: "1000+0x60"},
	},
	"DeltarouterHistoryLost": {
		fires: series{`deltarouter_history_lost_total{reason="refused"}`: "0+1x30", `deltarouter_history_lost_total{reason="slow"}`: "3+0x30"}, early: "5m", at: "20m",
		summary:     "The history misses records.",
		description: "The history could not take about 15 changes and decisions in the last 15 minutes. Deltas are delivered.",
		quiet:       series{`deltarouter_history_lost_total{reason="refused"}`: "7+0x60"},
	},
	"DeltarouterFleetNATS": {
		fires: series{`deltarouter_fleet_nats_problems`: "2+0x30"}, early: "4m", at: "5m",
		summary:     "NATS has problems that affect the fleet.",
		description: "The leader has found 2 faults of NATS for over 5 minutes. Deltas for workers wait on its disk, or standbys fall behind.",
		quiet:       series{`deltarouter_fleet_nats_problems`: "0+0x60"},
	},
	"DeltarouterFleetStranded": {
		fires: series{`deltarouter_fleet_stranded_deltas{route="alerts"}`: "3+0x30"}, early: "0m", at: "1m",
		labels:      map[string]string{"route": "alerts"},
		summary:     "Deltas of route alerts have no workers.",
		description: "3 deltas of route alerts wait for workers, which the configuration does not give it any more.",
		quiet:       series{`deltarouter_fleet_stranded_deltas{route="alerts"}`: "0+0x60"},
	},
	"DeltarouterGuestAtLimit": {
		fires: series{`deltarouter_guests_ended_total{handler="alert", reason="fuel"}`: "0+1x30"}, at: "20m",
		labels:      map[string]string{"handler": "alert", "reason": "fuel"},
		summary:     "Guests of handler alert reach a limit.",
		description: "About 15 guests of handler alert reached the limit fuel in the last 15 minutes.",
		quiet:       series{`deltarouter_guests_ended_total{handler="alert", reason="calls"}`: "0+1x60"},
	},
	"DeltarouterHandlerFails": {
		fires: series{`deltarouter_guests_ended_total{handler="alert", reason="trap"}`: "0+1x30"}, at: "20m",
		labels:      map[string]string{"handler": "alert", "reason": "trap"},
		summary:     "Guests of handler alert fail.",
		description: "About 15 guests of handler alert ended because of an error in the last 15 minutes: trap.",
		quiet:       series{`deltarouter_guests_ended_total{handler="alert", reason="canceled"}`: "0+1x60"},
	},
}

// moreCases are further series at which an alert fires, or not, at a time.
var moreCases = []struct {
	alert string
	in    series
	at    string
	fires bool
}{
	{"DeltarouterDeltasLost", series{`deltarouter_route_errors_total{route="alerts", kind="overflow"}`: "0+0x10 1+0x60"}, "30m", true},
	{"DeltarouterDiskLow", series{`deltarouter_state_disk_free_bytes`: "1073741824+0x60", `deltarouter_state_file_bytes`: "2147483648+0x60"}, "30m", true},
	// a few guests may end
	{"DeltarouterGuestAtLimit", series{`deltarouter_guests_ended_total{handler="alert", reason="fuel"}`: "0+0x10 4+0x60"}, "15m", false},
	{"DeltarouterGuestAtLimit", series{`deltarouter_guests_ended_total{handler="alert", reason="memory"}`: "0+1x60"}, "30m", true},
	// a new dead letter, and no other for a while
	{"DeltarouterDeadLetters", series{`deltarouter_route_deltas_total{route="alerts", result="dead_lettered"}`: "0+0x10 1+0x60"}, "20m", true},
	{"DeltarouterDeadLetters", series{`deltarouter_route_deltas_total{route="alerts", result="dead_lettered"}`: "0+0x10 1+0x60"}, "40m", false},
	// a restart of the router is no dead letter
	{"DeltarouterDeadLetters", series{`deltarouter_route_deltas_total{route="alerts", result="dead_lettered"}`: "7+0x10 0+0x60"}, "15m", false},
	// a source that recovers in time
	{"DeltarouterSourceStale", series{`deltarouter_source_unproven_seconds{source="pods"}`: "0+60x8 0+0x60"}, "15m", false},
	// a quiet source of an API server without bookmarks is listed every eight minutes
	{"DeltarouterSourceStale", series{`deltarouter_source_unproven_seconds{source="pods"}`: "0+60x8 0+60x8 0+60x8 0+60x8"}, "26m", false},
}
