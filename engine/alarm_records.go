package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// alarmRecord says that an alarm was told, and is not over.
type alarmRecord struct {
	key    alarmKey
	Tenant delivery.TenantNum `json:"tenant,omitzero"`
	Since  time.Time          `json:"since"`
	Count  int64              `json:"count,omitzero"` // dead letters
	At     time.Time          `json:"at"`             // when it was told
}

// alarmRecords keeps alarms that were told.
type alarmRecords interface {
	load() ([]alarmRecord, error)
	keep(alarmRecord) error
	drop(alarmKey) error
}

// record returns what is to be kept of an alarm that was told; nil = nothing.
func (h *heldAlarm) record(key alarmKey) *alarmRecord {
	r := &alarmRecord{key: key, Tenant: h.tenant, At: time.Now().UTC()}
	switch x := h.alarm.(type) {
	case *breakerAlarm:
		r.Since = x.since
	case *diskAlarm:
		r.Since = x.since
	case *deadAlarm:
		r.Since, r.Count = x.since, x.atTold
	default:
		return nil // it is told once, and done
	}
	return r
}

// keep writes a record. Without it the alarm would be told again after a restart: no
// more than that.
func (a *alarms) keep(d due, r alarmRecord) {
	if err := a.records.keep(r); err != nil {
		a.logger.Warn("alarm_not_recorded", "kind", string(d.key.kind), "error", err.Error())
		return
	}
	d.held.kept = true
}

// load takes up what was told before a restart.
func (a *alarms) load() {
	records, err := a.records.load()
	if err != nil {
		a.logger.Warn("alarms_not_loaded", "error", err.Error())
	}
	for _, r := range records {
		open := false
		if r.key.kind == alarmBreaker {
			open, err = a.open(r.key.sub)
			open = open || err != nil // then its next change says
		}
		a.take(r, open)
	}
}

func (a *alarms) take(r alarmRecord, open bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	told := condition{since: r.Since, raised: true, up: open, over: now}
	h := a.hold(r.key, r.Tenant, func() alarm {
		switch r.key.kind {
		case alarmBreaker:
			return &breakerAlarm{condition: told}
		case alarmDisk:
			return &diskAlarm{condition: told, node: a.node}
		default:
			return &deadAlarm{since: r.Since, count: r.Count, last: r.At, atTold: r.Count, toldAt: r.At}
		}
	})
	if h == nil {
		return
	}
	h.kept = true
	if d, isDisk := h.alarm.(*diskAlarm); isDisk { // the disk may have been looked at before
		d.since, d.raised = r.Since, true
	}
}

// alarmDocs keeps records in the registry.
type alarmDocs struct{ registry *storage.Registry }

const alarmDocKind = "alarm"

func (k alarmKey) doc() storage.DocKey {
	return storage.DocKey{Kind: alarmDocKind, ID: string(k.kind) + "/" + strconv.FormatUint(uint64(k.sub), 10)}
}

func parseAlarmKey(id string) (alarmKey, error) {
	kind, num, _ := strings.Cut(id, "/")
	sub, err := strconv.ParseUint(num, 10, 64)
	if _, known := rank[alarmKind(kind)]; !known || err != nil {
		return alarmKey{}, fmt.Errorf("alarm %q: not one of ours", id)
	}
	return alarmKey{alarmKind(kind), delivery.SubscriberNum(sub)}, nil
}

func (s alarmDocs) keep(r alarmRecord) error {
	body, err := json.Marshal(r)
	if err == nil {
		_, err = s.registry.PutDoc(r.key.doc(), body, storage.AnyVersion, false)
	}
	return err
}

func (s alarmDocs) drop(key alarmKey) error {
	return s.registry.DeleteDoc(key.doc(), storage.AnyVersion)
}

// load reads what it can; its error names what it could not.
func (s alarmDocs) load() (out []alarmRecord, err error) {
	for after := ""; ; {
		rows, next, listErr := s.registry.ListDocs(0, alarmDocKind, after, listPage)
		if listErr != nil {
			return out, errors.Join(err, listErr)
		}
		for _, row := range rows {
			var r alarmRecord
			rowErr := row.Err
			if rowErr == nil {
				rowErr = json.Unmarshal(row.Value.Body, &r)
			}
			if rowErr == nil {
				r.key, rowErr = parseAlarmKey(row.Value.Key.ID)
			}
			if rowErr != nil {
				err = errors.Join(err, rowErr)
				continue
			}
			out = append(out, r)
		}
		if after = next; next == "" {
			return out, err
		}
	}
}
