// Package informer turns what an API server sends into deltas.
//
// Its part in the flow: a [Factory] runs one client-go Reflector per [Watch] (resource, one
// namespace or all, selectors, what is kept). The Reflector lists and watches through a
// ListerWatcher of ours that decodes the wire itself: a stream of JSON is cut into objects, each
// object is checked once, what the source does not keep is cut out of its text, and the rest is
// kept as text ([event.Object]); nothing builds a map. What the Reflector finds it writes into our
// store adapter, which makes a delta of it and applies the delta in this order:
//
//	Admit (Downstream: which routes want it; may wait for room) → cut lock → Store, commit, fed resourceVersion → unlock
//
// So at any moment in which the cut lock is free, the cache, the backlogs of the routes, and how
// far the watch got agree with each other. With a checkpoint the watch also notes under that lock
// what changed, and [Factory.Dirty] collects it from all watches at once.
//
// Setting up, for the composition root:
//
//	client, err := informer.NewClient(cfg.Cluster, cfg.Policy)      // reads the kubeconfig, connects to nothing
//	f := informer.New(informer.Config{Client: client, Cluster: …, Metrics: …, Log: …, Downstream: pipeline})
//	specs, err := informer.SpecsOf(source)                          // one per namespace; comparable, so equal ones can be shared
//	w := f.Watch(spec, index.NewStore(…), informer.Source{Name: "pods", Resync: …}, …)
//	w.Restore(informer.Restored{Applied: …, Objects: …})                // with a checkpoint (Config.Gate), if w was saved before
//	f.Run(ctx)                                                      // until ctx is done
//	f.Dirty(also), f.Saved()                                        // every now and then: what to save, and that it was
//	f.Statuses(), f.Status("pods"), f.Synced("pods")                // readiness
//	restore := informer.QuietKlog(log)                              // client-go's own logging, without objects
//
// Going on after a restart. A watch that was restored dials at the resourceVersion that was saved,
// and the Reflector is handed a stream that begins with nothing but the bookmark that ends the
// initial events (where it lists: an empty list), which our store adapter knows to stand for what
// was restored. Nothing is listed but one object, before a watch resumes at startup or later, and
// twice a minute or more while it is open: a server whose resourceVersion is lower than ours was
// restored from a backup and would tell nothing until it has caught up. With it goes the question
// which cluster it is (the uid of namespace kube-system): each watch remembers whose objects it
// has. Where a watch cannot go on it is listed and compared with what it has. An object of which
// anything is delivered must be known after a crash, in the state in which a route was first told
// of it, or its delete could not be told: [Config.Gate] holds its deltas back until that state is
// saved, as an intent until a cut has the object itself.
//
// What can be relied on. While a watch can be resumed every change becomes a delta, in order. After
// a gap (410 Gone) the list is compared with the cache by uid and resourceVersion and the net
// change becomes deltas: a changed uid under one name is Deleted (of the old object) and Added (of
// the new one). After a crash what happened since the last cut is told again, in order. A backup
// whose resourceVersion has passed ours by the time we ask is not noticed. Deleted means gone:
// where a selector could be the reason, the API server is asked; where the whole resource vanished,
// discovery has to confirm it, no other version of it may be served, and its definition may not
// exist; 403 and 503 never delete. An object that cannot be read (not UTF-8, a key twice, too big)
// is left out, with one error and a count, and keeps its last state in the cache. Of one that is
// only nested too deep, identity and labels are passed on, with the annotation
// deltarouter.io/unreadable.
package informer
