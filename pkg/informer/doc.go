// Package informer watches an API server and makes deltas of the changes.
//
// A [Factory] runs one client-go Reflector per [Watch] (a resource in one namespace or in all, with
// selectors and a format). The Reflector lists and watches through our own ListerWatcher, which
// decodes the response itself: it cuts the JSON stream into objects, checks each object once,
// removes the fields that the source drops, and keeps the rest as text ([event.Object]) without
// building a map. The Reflector writes the objects to our store adapter, which makes a delta of
// each change and applies it in this order:
//
//	Admit (Downstream finds the routes that want the delta; may wait for room)
//	lock the cut lock
//	update the Store, commit the admissions, set the applied resourceVersion
//	unlock
//
// Whenever the cut lock is free, the cache, the backlogs of the routes, and the applied
// resourceVersion of the watch agree with each other. With a checkpoint the watch also records each
// change under that lock, and [Factory.BeginCut] collects the changes of all watches at one moment.
//
// Setting up, for the composition root:
//
//	client, err := informer.NewClient(cfg.Cluster, cfg.Policy) // opens no connection
//	f := informer.New(informer.Config{Client: client, …, Downstream: pipeline})
//	specs, err := informer.SpecsOf(source) // one, or one per namespace
//	w := f.Watch(spec, index.NewStore(…), informer.Source{Name: "pods", Resync: …}, …)
//	w.Restore(informer.Restored{Applied: …, Objects: …}) // if the checkpoint has the watch
//	f.Run(ctx)                                           // until ctx is done
//	f.BeginCut().End(), f.Saved()                        // for each write of the checkpoint
//	f.Statuses(), f.Status("pods"), f.Synced("pods")     // readiness
//	restore := informer.QuietKlog(log)                   // client-go's logging, without objects
//
// A restart. A restored watch resumes at the saved resourceVersion. The Reflector receives a stream
// that starts with the bookmark that ends the initial events (or an empty list if it lists), and
// the store adapter takes that bookmark for the restored objects. Before a watch resumes, and at
// least twice a minute while it is open, one object is listed: a server whose resourceVersion is
// lower than ours was restored from a backup and would send no events until it has caught up. The
// same request reads the uid of the namespace kube-system, because each watch records the cluster
// of its objects. A watch that cannot resume lists, and compares the list with its cache. An object
// of which a delta is delivered must be on disk in the state that its routes saw first; otherwise
// its deletion would be missed after a crash. [Config.Gate] holds the deltas of the object back
// until that state is saved: as an intent first, then in a cut.
//
// Guarantees. As long as a watch can resume, every change becomes a delta, in order. After a gap
// (410 Gone) the list is compared with the cache by uid and resourceVersion, and the net changes
// become deltas: another uid under the same name is Deleted (of the old object) and Added (of the
// new one). After a crash the changes since the last cut are repeated, in order. A restored backup
// whose resourceVersion has already passed ours is not noticed. Deleted means that the object no
// longer exists: if a selector could be the reason, the API server is asked; if the whole resource
// vanished, discovery has to confirm it, no other version of it may be served, and its definition
// must not exist; 403 and 503 never delete. An object that cannot be read (not UTF-8, a duplicate
// key, too large) is skipped with one error and a count, and keeps its last state in the cache. An
// object that is only nested too deeply is passed on as its identity and labels, with the
// annotation deltarouter.io/unreadable.
package informer
