package sched

func Exported() {}
