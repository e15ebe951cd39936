import parked

parked.park()
