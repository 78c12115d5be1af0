package informer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Both are a 410 for the Reflector, which lists then.
var (
	errWentBack = apierrors.NewResourceExpired("the API server has gone back in time")
	errMoved    = apierrors.NewResourceExpired("the API server is another cluster's")
)

// mayGoOn finds out whether a watch may go on from where it is. If the API server has another past than what was seen, or is another
// cluster's, the error is errWentBack or errMoved, and the next list is the truth.
func (w *Watch) mayGoOn(ctx context.Context, from string) error {
	if found := w.suspect.Swap(nil); found != nil {
		w.latest.Store(true)
		return *found
	}
	version, err := w.probe(ctx, from, 0)
	if err != nil {
		if isUseless(err) {
			w.latest.Store(true)
		}
		return err
	}
	w.cut.Lock()
	defer w.cut.Unlock()
	if w.resumable.Load() {
		w.told = version
	}
	return nil
}

// willList notes which cluster is about to be listed. If that is not the one that the objects are of, its objects are taken as they
// are, whatever their resourceVersions say.
func (w *Watch) willList(ctx context.Context) error {
	if w.suspect.Swap(nil) != nil {
		w.latest.Store(true)
	}
	cluster, err := w.factory.census.identity(ctx, 0)
	if err != nil {
		return err
	}
	w.cut.Lock()
	moved := cluster != "" && w.cluster != "" && cluster != w.cluster
	w.listing = cluster
	w.cut.Unlock()
	if moved {
		w.latest.Store(true)
		w.noteError(errMoved)
		w.log.Warn("this is another cluster than the one that the objects are of: everything is listed, and what differs is put through",
			"watch", w.name)
	}
	return nil
}

// moving reports whether what is being listed is another cluster than the one that the objects are of.
func (w *Watch) moving() bool {
	w.cut.Lock()
	defer w.cut.Unlock()
	return w.listing != "" && w.cluster != "" && w.listing != w.cluster
}

// probe asks the API server which cluster it is (an answer of maxAge will do) and for its resourceVersion. A restored backup has one
// that is lower than what was seen before, and a watch from there would hear nothing until it is reached again. The list has no
// resourceVersion: it is a quorum read, so that no replica of the API server that lags behind is taken for a restored backup.
func (w *Watch) probe(ctx context.Context, from string, maxAge time.Duration) (version string, err error) {
	cluster, err := w.factory.census.identity(ctx, maxAge)
	if err != nil {
		return "", err
	}
	if !w.isOf(cluster) {
		return "", errMoved
	}
	list, err := w.listMetadata(ctx, w.path(), w.query(metav1.ListOptions{Limit: 1}))
	if err != nil {
		return "", err
	}
	if lower(list.ResourceVersion, from) {
		return "", errWentBack
	}
	return list.ResourceVersion, nil
}

// isOf reports whether the objects are of that cluster, as far as that is known. If nothing was known of them so far they are taken
// for it.
func (w *Watch) isOf(cluster string) bool {
	w.cut.Lock()
	defer w.cut.Unlock()
	if w.cluster == "" {
		w.cluster = cluster
	}
	return cluster == "" || cluster == w.cluster
}

// patrol probes every now and then while a watch is open, until ctx is done. The waits differ by chance, so that many watches do not
// ask at once. What it finds out ends the watch; the next one lists.
func (w *Watch) patrol(ctx context.Context) {
	interval := w.factory.cfg.ProbeInterval
	for {
		t := time.NewTimer(interval/2 + rand.N(interval*2/5))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if r := w.stream.Load(); r != nil {
			w.inspect(ctx, r)
		}
	}
}

// inspect probes once, and ends the stream if it is of no use any more.
func (w *Watch) inspect(ctx context.Context, r *reader) {
	from, ok := w.settled()
	if !ok {
		return
	}
	_, err := w.probe(ctx, from, w.factory.cfg.ProbeInterval/10)
	if !isUseless(err) {
		return // if the API server does not answer, the watch will notice
	}
	// Meanwhile the watch may have found out by itself.
	if now, ok := w.settled(); ok && !lower(now, from) && w.stream.Load() == r {
		w.suspect.Store(&err)
		r.Stop()
	}
}

// settled returns fed if the store is what fed says, and no list is on its way.
func (w *Watch) settled() (fed string, ok bool) {
	w.cut.Lock()
	defer w.cut.Unlock()
	return w.fed, w.fed != "" && !w.relisting && !w.latest.Load()
}

// isUseless reports whether a watch must not go on.
func isUseless(err error) bool { return errors.Is(err, errWentBack) || errors.Is(err, errMoved) }

// cannotProbe reports whether the API server refuses to answer a probe, which does not say that it refuses to watch.
func cannotProbe(err error) bool {
	return !isUseless(err) && (apierrors.IsForbidden(err) || isAnswer(err) && !apierrors.IsNotFound(err))
}
