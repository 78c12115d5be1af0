package main

import "strings"

// row is a titled group of panels.
type row struct {
	title  string
	panels []panel
}

// panel is one graph, or one figure if stat is set. In an expression, $I selects the routers and $R
// the routes of the variables of the dashboard, and $T is the range of a rate.
type panel struct {
	title   string
	unit    string // of Grafana
	queries []query
	stat    bool
	bad     bool // a figure above 0 is shown in red
	help    string
}

type query struct{ expr, legend string }

// expand replaces the abbreviations of an expression.
func expand(expr string) string {
	return strings.NewReplacer("$I", `instance=~"$instance"`, "$R", `instance=~"$instance", route=~"$route"`, "$T", "$__rate_interval").Replace(expr)
}

// rows returns the whole dashboard from top to bottom.
func rows() []row {
	return []row{
		overview(), backlog(), rates(), latency(), sources(), checkpoint(), sinks(), guests(), process(),
	}
}

func overview() row {
	return row{"Overview", []panel{
		{title: "Sources not synced", stat: true, bad: true, queries: one(`count(deltarouter_source_synced{$I} == 0) or vector(0)`, "")},
		{title: "Routes paused", stat: true, bad: true, queries: one(`sum(deltarouter_route_paused{$I}) or vector(0)`, "")},
		{title: "Sinks unavailable", stat: true, bad: true, queries: one(`sum(deltarouter_route_sink_unavailable{$I}) or vector(0)`, "")},
		{title: "Dead letters", stat: true, bad: true, queries: one(`sum(deltarouter_dead_letters{$I}) or vector(0)`, "")},
		{
			title: "Invalid configurations", stat: true, bad: true, queries: one(`count(deltarouter_config_last_reload_successful{$I} == 0) or vector(0)`, ""),
			help: "Routers whose configuration on disk was rejected.",
		},
		{title: "Version", stat: true, queries: one(`deltarouter_build_info{$I}`, "{{version}}")},
	}}
}

func backlog() row {
	return row{"Backlog", []panel{
		{title: "Pending deltas", unit: "short", queries: one(`sum by (route) (deltarouter_route_queue_deltas{$R})`, "{{route}}")},
		{title: "Oldest pending delta", unit: "s", queries: one(`max by (route) (deltarouter_route_oldest_pending_seconds{$R})`, "{{route}}")},
		{
			title: "Backlog on disk", unit: "bytes", queries: one(`sum by (route) (deltarouter_route_queue_disk_bytes{$R})`, "{{route}}"),
			help: "At the last checkpoint.",
		},
		{title: "Conditions and watches", unit: "short", queries: []query{
			{`sum by (route) (deltarouter_route_active_objects{$R})`, "{{route}} active"},
			{`sum by (route) (deltarouter_route_pending_objects{$R})`, "{{route}} pending"},
			{`sum by (route) (deltarouter_route_watches_backlog_objects{$R})`, "{{route}} to evaluate"},
		}, help: "Objects for which the condition of a route holds, is pending, or is to be evaluated because of a watch."},
	}}
}

func rates() row {
	return row{"Rates", []panel{
		{title: "Deltas by result", unit: "cps", queries: one(`sum by (result) (rate(deltarouter_route_deltas_total{$R}[$T]))`, "{{result}}")},
		{
			title: "Delivered deltas by route", unit: "cps",
			queries: one(`sum by (route) (rate(deltarouter_route_deltas_total{$R, result="delivered"}[$T]))`, "{{route}}"),
		},
		{title: "Lost and dead-lettered deltas", unit: "cps", queries: []query{
			{`sum by (route) (rate(deltarouter_route_deltas_total{$R, result="dead_lettered"}[$T]))`, "{{route}} dead letters"},
			{`sum by (route) (rate(deltarouter_route_errors_total{$R, kind="overflow"}[$T]))`, "{{route}} overflow"},
		}},
		{title: "Errors by kind", unit: "cps", queries: one(`sum by (route, kind) (rate(deltarouter_route_errors_total{$R}[$T]))`, "{{route}} {{kind}}")},
	}}
}

func latency() row {
	return row{"Latency", []panel{
		{
			title: "Delivery, median", unit: "s", queries: quantile(0.5, "deltarouter_route_delivery_duration_seconds", "$R", "route"),
			help: "From a delta being seen to its ack: includes batch.wait, debounce and retries.",
		},
		{title: "Delivery, 99th percentile", unit: "s", queries: quantile(0.99, "deltarouter_route_delivery_duration_seconds", "$R", "route")},
		{title: "Handler call, 99th percentile", unit: "s", queries: quantile(0.99, "deltarouter_handler_call_duration_seconds", "$I", "handler")},
	}}
}

func sources() row {
	return row{"Sources", []panel{
		{title: "Deltas seen", unit: "cps", queries: one(`sum by (source, op) (rate(deltarouter_source_deltas_total{$I}[$T]))`, "{{source}} {{op}}")},
		{title: "Objects in the cache", unit: "short", queries: one(`sum by (source) (deltarouter_source_objects{$I})`, "{{source}}")},
		{title: "Bytes in the cache", unit: "bytes", queries: one(`sum by (source) (deltarouter_source_bytes{$I})`, "{{source}}")},
		{title: "Since the last proof that nothing is missing", unit: "s", queries: one(`max by (source) (deltarouter_source_unproven_seconds{$I})`, "{{source}}")},
		{title: "Relists", unit: "short", queries: one(`sum by (source, reason) (increase(deltarouter_source_relists_total{$I}[$T]))`, "{{source}} {{reason}}")},
		{title: "Unreadable objects, failed indexes", unit: "short", queries: []query{
			{`sum by (source) (increase(deltarouter_source_object_errors_total{$I}[$T]))`, "{{source}} objects"},
			{`sum by (source, index) (increase(deltarouter_source_index_errors_total{$I}[$T]))`, "{{source}} {{index}}"},
		}},
	}}
}

func checkpoint() row {
	return row{"Checkpoint", []panel{
		{title: "Age of the checkpoint", unit: "s", queries: one(`max by (instance) (deltarouter_checkpoint_age_seconds{$I})`, "{{instance}}")},
		{title: "State file and disk", unit: "bytes", queries: []query{
			{`deltarouter_state_file_bytes{$I}`, "{{instance}} state file"},
			{`deltarouter_state_file_limit_bytes{$I}`, "{{instance}} limit"},
			{`deltarouter_state_disk_free_bytes{$I}`, "{{instance}} free"},
		}},
		{title: "Dead letters", unit: "short", queries: []query{
			{`sum by (route) (deltarouter_dead_letters{$R})`, "{{route}}"},
			{`sum by (route, reason) (increase(deltarouter_dead_letters_evicted_total{$R}[$T]))`, "{{route}} evicted, {{reason}}"},
		}},
	}}
}

func sinks() row {
	return row{"Sinks", []panel{
		{
			title: "Delivered events", unit: "cps",
			queries: one(`sum by (route, sink) (rate(deltarouter_route_events_total{$R, result="delivered"}[$T]))`, "{{route}} to {{sink}}"),
		},
		{
			title: "Retried and rejected events", unit: "cps",
			queries: one(`sum by (route, sink, result) (rate(deltarouter_route_events_total{$R, result!="delivered"}[$T]))`, "{{route}} to {{sink}} {{result}}"),
		},
		{
			title: "Unavailable", unit: "short", queries: one(`max by (route, sink) (deltarouter_route_sink_unavailable{$R})`, "{{route}} to {{sink}}"),
			help: "1 while the circuit breaker of the sink is open.",
		},
	}}
}

func guests() row {
	return row{"Guests", []panel{
		{title: "Handler calls", unit: "cps", queries: either(
			`sum by (handler) (rate(deltarouter_handler_call_duration_seconds_count{$I}[$T]))`,
			`histogram_count(sum by (handler) (rate(deltarouter_handler_call_duration_seconds{$I}[$T])))`, "{{handler}}")},
		{title: "Memory", unit: "bytes", queries: one(`sum by (handler) (deltarouter_guest_memory_bytes{$I})`, "{{handler}}")},
		{
			title: "Fuel", unit: "cps", queries: one(`sum by (handler) (rate(deltarouter_guest_fuel_total{$I}[$T]))`, "{{handler}}"),
			help: "About one for each instruction.",
		},
		{title: "Ended guests", unit: "short", queries: one(`sum by (handler, reason) (increase(deltarouter_guests_ended_total{$I}[$T]))`, "{{handler}} {{reason}}")},
	}}
}

func process() row {
	return row{"Process", []panel{
		{title: "CPU", unit: "short", queries: one(`rate(process_cpu_seconds_total{$I}[$T])`, "{{instance}}"), help: "In cores."},
		{title: "Memory", unit: "bytes", queries: []query{
			{`process_resident_memory_bytes{$I}`, "{{instance}} resident"},
			{`go_memstats_heap_inuse_bytes{$I}`, "{{instance}} heap"},
		}},
		{title: "Goroutines and open files", unit: "short", queries: []query{
			{`go_goroutines{$I}`, "{{instance}} goroutines"},
			{`process_open_fds{$I}`, "{{instance}} files"},
		}},
	}}
}

func one(expr, legend string) []query { return []query{{expr, legend}} }

// either returns a query over a histogram in both forms: Prometheus keeps the classic buckets, or,
// if it scrapes native histograms, by default only these.
func either(classic, native, legend string) []query { return one(classic+"\nor "+native, legend) }

// quantile returns the query for a quantile of a histogram by one label.
func quantile(q float64, metric, selector, label string) []query {
	r := strings.NewReplacer("Q", formatQuantile(q), "METRIC", metric, "SELECTOR", selector, "LABEL", label)
	return either(
		r.Replace(`histogram_quantile(Q, sum by (LABEL, le) (rate(METRIC_bucket{SELECTOR}[$T])))`),
		r.Replace(`histogram_quantile(Q, sum by (LABEL) (rate(METRIC{SELECTOR}[$T])))`), "{{"+label+"}}")
}
